// Scales, ticks and markers. A logarithmic axis works on log10 of its numbers.

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** Number → place on the axis before scaling; NaN where it has none. */
function placed(number, log) {
  if (number === null || number === undefined) return NaN;
  return log ? (number > 0 ? Math.log10(number) : NaN) : number;
}

/** [low, high] of some places with a margin; places that are not finite do not count. */
function extent(places, margin = 0.04) {
  let low = Infinity, high = -Infinity;
  for (const place of places) {
    if (!Number.isFinite(place)) continue;
    if (place < low) low = place;
    if (place > high) high = place;
  }
  if (low > high) return [0, 1];
  const room = high > low ? (high - low) * margin : Math.abs(low) * 0.1 || 0.5;
  return [low - room, high + room];
}

function power(exponent) {
  if (exponent === 0) return "1";
  if (exponent === 1) return "10";
  const raised = [...String(Math.abs(exponent))].map((digit) => RAISED[digit]).join("");
  return `10${exponent < 0 ? "⁻" : ""}${raised}`;
}

/** Ticks of an axis as [place, text], about `wanted` of them. */
function ticks([low, high], log, wanted) {
  if (log && high - low >= 1) {
    const stride = Math.max(1, Math.ceil((high - low) / wanted));
    const found = [];
    for (let at = Math.ceil(low); at <= high; at += 1) {
      if (at % stride === 0) found.push([at, power(at)]);
      if (high - low < 2) {
        for (const factor of [2, 5]) found.push([at + Math.log10(factor), digits(factor * 10 ** at, 2)]);
      }
    }
    if (high - low < 2) {
      for (const factor of [2, 5]) found.push([Math.ceil(low) - 1 + Math.log10(factor), digits(factor * 10 ** (Math.ceil(low) - 1), 2)]);
    }
    return found.filter(([at]) => at >= low && at <= high);
  }
  const from = log ? 10 ** low : low;
  const to = log ? 10 ** high : high;
  const rough = (to - from) / wanted;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * unit >= rough) * unit;
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-12) + 1e-300; n += 1) {
    found.push([log ? Math.log10(n * step) : n * step, digits(n * step, 6)]);
  }
  return found.filter(([at]) => Number.isFinite(at) && at >= low && at <= high);
}

/** The outline of a marker about (x, y). */
function markPath(kind, x, y, r) {
  switch (kind % 5) {
    case 1: return `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
    case 2: return `M${x},${y - 1.2 * r}l${1.2 * r},${2.1 * r}h${-2.4 * r}z`;
    case 4: return `M${x},${y - 1.4 * r}l${1.4 * r},${1.4 * r}l${-1.4 * r},${1.4 * r}l${-1.4 * r},${-1.4 * r}z`;
    case 3: return `M${x - r},${y - r}l${2 * r},${2 * r}M${x - r},${y + r}l${2 * r},${-2 * r}`;
    default: return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
  }
}
