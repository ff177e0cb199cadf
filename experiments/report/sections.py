"""The sections of the report: which tables of the paper each holds, and its text.

A figure names its section itself (``Spec.section``). Numbers of tables and figures come from records, never from these
texts. They are plain text; backticks mark code.
"""

from __future__ import annotations

from dataclasses import dataclass

ABOUT = (
    "The Neurogenesis Network learns how many ordered components a network needs. A learned boundary t opens the gates "
    "of the components f_0, f_1 and so on. A capacity price λ, a snapping term α and a rising sharpness β let it land "
    "on an integer. Then everything beyond the boundary is cut off, and an ordinary, smaller model is left. This "
    "report sets every number that the paper publishes beside the same number from runs of this suite.",
    "The paper: Lixing Li, NGN: Learning Neural Network Size as a Differentiable Count, unpublished.",
)
"""What a reader needs first."""

READING = (
    "Every number called ours comes from the records of runs, and from nothing else. A published value *disagrees* if "
    "a test rejects, at 5 %, that both samples come from one distribution. The tests are a t-test for means, exact "
    "tests for medians, rates and outcomes, and the rank among our seeds for a single run. All our seeds of a row "
    "count, also where it prints fewer. A value *agrees* if the test does not reject and the interval of values that "
    "it would not reject is narrow: a factor of 3 either way for errors, one component, half a point of accuracy, 30 "
    "points of a rate. Else the runs *cannot tell*. Deviations are shown and not judged. Cells by which settings were "
    "chosen are judged and marked as calibrated: their agreement is no evidence.",
    "n is the number of usable seeds, of those wanted. Stand-ins, such as shorter runs, follow the row that they stand "
    "for. They count in no total and enter no number of the paper's own tables.",
    "Many cells print one fact twice, so facts are counted, each once. Some tests reject by chance alone; their "
    "expected number stands beside them.",
)

ALTERNATIVES = (
    "The paper's tables hold the stated setting: what the text says, and our own choice where it says nothing. Some "
    "disagreements end under another setting. Each such setting stands beside the stated one below, with every number "
    "and statement that it changes. The same rule judges both. Cells whose published values suggested the setting are "
    "marked as calibrated: their agreement is no evidence. Two dashes mean that there are no records yet. A fact "
    "counts once, even if several cells print it."
)
"""What a reader needs before the alternative settings."""

TRUNCATION = (
    "Truncation replaces the gates of the kept components by ones and drops the other components (the hard prefix, "
    "equation 3). One may also keep the prefix with its soft gates. Every record stores both errors. The tables hold "
    "the first, since the equation is the definition. Below are ratios of truncated to soft errors, in which "
    "differences of the fit cancel: the published ratio, and ours both ways, with the range over seeds in brackets. If "
    "the published row is one run, ours is the ratio of the median seed.",
)


@dataclass(frozen=True)
class Outline:
    """A section before it is filled: the macros of its tables in order, and its text."""

    key: str
    title: str
    macros: tuple[str, ...]
    paragraphs: tuple[str, ...] = ()


OUTLINES = (
    Outline(
        "one_d",
        "Controlled analysis: 1D regression",
        ("stdT", "stdSoftMSE", "stdHardMSE", "datafourbody", "datafourfullbody", "datasevenbody", "datasevenfullbody"),
        (
            "The paper leaves open the width of the blocks, the boundary's learning rate, what the gradient clip "
            "covers, the schedule of the body's learning rate, and the layout of the inputs. About forty "
            "configurations were compared with table 4 to choose these, and sixteen more to choose the boundary's rate "
            "and the draw of the inputs. So the cells of table 4, of its full form, and of all of the baseline are "
            "marked: their agreement is no evidence. The λ sweep, the comparison with fixed models, the initialisation "
            "sweep, the other capacity learners and the decay table took no part in choosing. They are the independent "
            "test of the same settings. One choice is an exception: short runs decided that the decay ratio is trained "
            "at the body's rate.",
            "The learned size depends on which inputs are drawn, and all seeds share one draw. The log says what the "
            "calibration of rate and draw changed, and which tests it passed and failed. The runs under the earlier "
            "setting are kept (study former).",
            "The size also depends on how a processor rounds. Ten seeds of the baseline were trained on two kinds of "
            "processor (before that calibration). Three of them end at another t, by half a component or one. That is "
            "a tenth of the variance over seeds.",
            "In the λ sweep the largest α equals λ₀. The price can hold a boundary near the middle between two "
            "integers, where the last gate is steepest and sin²(πt) nearly flat. The boundary leaves this place only "
            "when α exceeds what is left of λ. By then the body's learning rate is small, so its components cannot "
            "follow. Boundaries between integers at high prices in figure 2 lie there. This explanation is our "
            "interpretation, not a result.",
        ),
    ),
    Outline(
        "decay",
        "Learned decay and normalisation",
        ("decayablationbody",),
        (
            "At the usual start t₀ = 1e-4 a normalised boundary has next to no gradient: dt/dτ is 1e-4, and a second "
            "component is of no use yet. The same row from t₀ = 1 stands beside it.",
            "A learned ratio is trained at the body's learning rate. The fixed column is the same kind of run for "
            "every learner: NGN's weights at the kept count. The paper does not say which weights its fixed models of "
            "other learners had.",
        ),
    ),
    Outline(
        "manifold",
        "Intrinsic dimension of manifolds",
        ("datafifteenbody", "datafifteenfullbody"),
        (
            "Short trainings select too few terms, so no stand-in of fewer steps is shown for these rows.",
            "A boundary a few hundredths above D − 1 keeps D terms. If it stops an eighth above, truncation cuts a "
            "half-open term and the error rises. The published spread at D = 2 must come from such seeds as well. "
            "Every record also holds the numerical rank of the deployed bottleneck: the number of singular values "
            "above a thousandth of the largest.",
        ),
    ),
    Outline(
        "transfer",
        "Other structures and tasks",
        ("dataeightbody", "dataeightfullbody"),
        (
            "The paper omits optimisers, rates, batch sizes and lengths. Ours were chosen on held-out training data, "
            "never on test data, mostly by accuracy. The learned size was printed beside each accuracy, and it differs "
            "between settings whose accuracies differ by less than their noise. So agreement of a size is weaker "
            "evidence than agreement of an accuracy.",
        ),
    ),
    Outline(
        "depth",
        "Learned depth",
        ("dataninebody", "datatenbody"),
        (
            "The published rows are single runs, and so are the cells beside them (seed 0). The figure has ten seeds. "
            "Steps, optimiser and rates are not in the paper. We took them from an earlier experiment and did not "
            "change them.",
            "With r = ½ in every layer the last layer's output is below 2 by its formula, and the targets are not. "
            "That alone sets a floor under the error of the rows with constant r, whatever the model learns.",
            "With a constant price the paper keeps all ten layers. In our runs some layers become the identity, and "
            "which ones depends on the seed. The reason is not known.",
        ),
    ),
    Outline(
        "peft",
        "LoRA rank and adapter width",
        ("dataelevenlorabody", "dataelevenadapterbody", "dataelevenbody", "dataelevenbaselinesbody"),
        (
            "The published rows are single runs, so a verdict on them is only their place in our spread.",
            "The published rows are of Llama-3-8B-Instruct. The stand-in behind each is SmolLM2-135M-Instruct, the "
            "same architecture at a sixtieth of the size, trained on 60,000 tokens twice and scored on 200 questions "
            "(budget=cpu), on splits that docs/data.md names. Compare patterns, never scores: where ranks are kept, "
            "what truncation costs, and which method is ahead. Forgetting is measured on WikiText-2, not on the Pile.",
        ),
    ),
    Outline(
        "pruning",
        "Structured pruning",
        ("datafourteenintrate", "datafourteenmixintrate", "datathirteenbody", "datafourteenbody"),
        (
            "The published rows are single runs, so a verdict on them is only their place in our spread.",
            "They are of Pythia-410M (table 13) and of Llama-3-8B-Instruct (table 14). The stand-in behind each is "
            "SmolLM2-135M-Instruct, trained for one pass over 60,000 tokens and scored on 200 questions (budget=cpu); "
            "forgetting is measured on WikiText-2. Compare patterns, never scores.",
            "The paper does not say where its frozen models learned the form of the answers. Ours did not learn it: "
            "frozen weights are those of the pretrained model.",
        ),
    ),
    Outline("own", "Beyond the paper", ()),
)
