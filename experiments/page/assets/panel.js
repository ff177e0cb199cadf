// The panel is a modal dialog whose content follows the address: #cell/…, #run/…, #point/…. The browser's dialog keeps
// the focus inside, closes on Escape and gives the focus back.

const VIEWS = {
  cell: (rest) => cellView(rest.join("/")),
  run: (rest) => runView(rest.join("/")),
  point: (rest) => pointView(rest),
};

function startPanel() {
  const dialog = document.getElementById("panel");
  const title = document.getElementById("panel-title");
  const kind = document.getElementById("panel-kind");
  const body = document.getElementById("panel-body");
  const back = document.getElementById("panel-back");
  let depth = 0;

  const address = () => decodeURIComponent(location.hash.slice(1)).split("/");

  function follow() {
    const [name, ...rest] = address();
    if (!(name in VIEWS)) {
      if (dialog.open) dialog.close();
      return;
    }
    const view = VIEWS[name](rest) ?? { title: "Not on this page", kind: name, body: [element("p", {}, `There is no ${name} ${rest.join("/")} here.`)] };
    title.textContent = view.title;
    kind.textContent = view.kind;
    body.replaceChildren(...view.body.flat(2).filter(Boolean));
    if (!dialog.open) {
      depth = 0;
      dialog.showModal();
    } else depth += 1;
    back.hidden = depth === 0;
    dialog.scrollTop = 0;
    title.focus();
  }

  dialog.addEventListener("close", () => {
    if (address()[0] in VIEWS) history.pushState(null, "", location.href.split("#")[0]);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.getElementById("panel-close").addEventListener("click", () => dialog.close());
  back.addEventListener("click", () => {
    depth -= 2; // following the address adds one again
    history.back();
  });
  addEventListener("hashchange", follow);
  follow();
}
