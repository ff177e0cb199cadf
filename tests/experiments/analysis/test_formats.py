"""Printed numbers."""

from __future__ import annotations

import pytest

from experiments.analysis.tables import half_unit, parse_format, print_number
from experiments.analysis.terminal import tex_to_text


@pytest.mark.parametrize(
    ("spec", "number", "text"),
    [
        (".2f", 5.449999999999999, "5.45"),
        (".0f", 34.4, "34"),
        (".2e", 1.3054e-5, "1.31e-05"),
        (".1e", 2.34e-3, "2.3e-03"),
        ("d", 19, "19"),
        ("short", 639.4, "639"),
        ("short", 999.7, "1.0e3"),
        ("short", 69_900.0, "7.0e4"),
        ("word", 1, "partial"),
    ],
)
def test_numbers_print_as_the_paper_does(spec: str, number: float, text: str) -> None:
    assert print_number(number, spec) == text


@pytest.mark.parametrize(("number", "spec"), [(float("nan"), ".2f"), (float("inf"), ".2e"), (1.5, "d")])
def test_what_is_no_number_of_the_format_is_refused(number: float, spec: str) -> None:
    with pytest.raises(ValueError, match=r"no number|no integer"):
        print_number(number, spec)


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        (r"<mean:.2e>\,$\pm$\,<sd:.1e>", r"9.32e-04\,$\pm$\,2.3e-03", {"mean": 9.32e-4, "sd": 2.3e-3}),
        (r"\texttt{[<median:.2f*, >]}", r"\texttt{[2.11, 3.03]}", {"median": [2.11, 3.03]}),
        ("<size.value:d> (<a.value:d>/<b.value:d>)", "19 (2/17)", {"size.value": 19, "a.value": 2, "b.value": 17}),
        ("<soft.value:.1f> / <hard.value:.1f>", "78.2 / 78.6", {"soft.value": 78.2, "hard.value": 78.6}),
    ],
)
def test_composite_cells(source: str, text: str, value: dict[str, object]) -> None:
    assert parse_format(source).render(value) == text


def test_a_value_needs_the_slots_of_a_format() -> None:
    with pytest.raises(KeyError, match="mean"):
        parse_format("<mean:.2f>").render({"median": 1.0})
    with pytest.raises(ValueError, match="takes one number"):
        parse_format("<median:.2f>").render({"median": [1.0, 2.0]})
    with pytest.raises(ValueError, match="different names"):
        parse_format("<mean:.2f> <mean:.2f>")


@pytest.mark.parametrize(
    ("number", "spec", "half"), [(6.0, ".2f", 0.005), (1.31e-5, ".2e", 0.5e-7), (7e4, "short", 500.0), (3, "d", 0.0)]
)
def test_half_a_unit_of_the_last_digit(number: float, spec: str, half: float) -> None:
    assert half_unit(number, spec) == pytest.approx(half)


def test_labels_are_plain_in_the_terminal() -> None:
    assert tex_to_text(r"$\alpha=10^{-4}$ const") == "α=10⁻⁴ const"
    assert tex_to_text(r"$\kappa=1$, $\beta\times 2$") == "κ=1, β× 2"
    assert tex_to_text(r"yes (\texttt{[8.20\,$\pm$\,0.40]}; Y/P/N=10/0/0)") == "yes ([8.20 ± 0.40]; Y/P/N=10/0/0)"
