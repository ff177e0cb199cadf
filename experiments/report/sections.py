"""The sections of the report: which tables of the paper they hold, and what has to be said beside them.

A figure names its section itself (``Spec.section``).

The numbers of tables and figures come from records, never from these texts. Plain text; backticks mark code.
"""

from __future__ import annotations

from dataclasses import dataclass

ABOUT = (
    "The Neurogenesis Network learns how many ordered components a network needs. A learned boundary t opens the gates "
    "of the components f_0, f_1 and so on; a capacity price λ, a snapping term α and a rising sharpness β let it land "
    "on an integer; then everything beyond the boundary is cut off, and an ordinary, smaller model is left. This "
    "report sets every number that the paper publishes beside the same number from runs of this suite.",
    "The paper: Lixing Li, NGN: Learning Neural Network Size as a Differentiable Count, unpublished.",
)
"""What a reader needs first."""

READING = (
    "Every number called ours is reduced from the records of runs, and from nothing else. A published value disagrees "
    "when a test of both samples rejects, at 5 %, that they come from one distribution: Welch's for means, exact ones "
    "for medians, rates and outcomes, the rank among our seeds for a single run. It agrees when it is not rejected and "
    "the interval of values that would not be is narrow enough to say something: a factor of 3 either way for errors, "
    "one component, half a point of accuracy, 30 points of a rate. Else one cannot tell. Deviations are shown and not "
    "judged. Calibrated cells, by which settings were chosen, are judged and marked: their agreement is no evidence.",
    "n is the number of usable seeds of those wanted. Stand-ins, such as shorter runs, are named beside the row that "
    "they stand for; they count in no total and enter no number of the paper's own tables.",
    "Many cells print one fact twice, so facts are counted, each once. Some tests reject by chance alone; their "
    "expected number stands beside them.",
)

ALTERNATIVES = (
    "The paper's tables hold the stated setting: what the text says, and our own choice where it says nothing. Some "
    "disagreements end under another setting. Each such setting stands beside the stated one below: every number and "
    "statement that it changes, judged by the same rule. Cells whose published values suggested the setting are marked "
    "calibrated: their agreement is no evidence. A dash is not run yet. Facts are the distinct facts that can be "
    "judged; several cells can print one."
)
"""What a reader needs before the alternative settings."""

TRUNCATION = (
    "Truncation replaces the gates of the kept components by ones and drops the others (the hard prefix, equation 3). "
    "One may also keep the prefix with its soft gates. Every record stores both, and the tables hold the first: the "
    "equation stays the definition. Below are ratios of truncated to soft errors, in which differences of the fit "
    "cancel: the published one, and ours both ways, with the range over seeds in brackets. Where one run is published, "
    "ours is the ratio of the median seed.",
)

COST = (
    "What a forward pass of the models of table 8 costs: medians over seeds of the trained parameters, of the "
    "multiply-adds of one sample (matrix products and convolutions, nothing else), and of the wall time of a batch, "
    "beside the accuracy on test data. A truncated model is an ordinary one: it has no gates. The times were measured "
    "together on one idle machine, after training, with models of the recorded sizes that took turns. On Cora the "
    "candidates start from A X, which a training computes once, and a truncated model from the graph itself."
)


@dataclass(frozen=True)
class Outline:
    """A section to be filled: the macros of its tables in their order, and its text."""

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
            "covers, the schedule of the body's learning rate, and the layout of the inputs. These were settled among "
            "about forty configurations, and the boundary's rate and the draw of the inputs among sixteen more, by "
            "how well they agree with table 4. So the cells of table 4, of its full form, and of all of the baseline "
            "are marked: their agreement is no evidence. The λ sweep, the comparison with fixed models, the "
            "initialisation sweep, the other capacity learners and the decay table were not looked at when choosing; "
            "they are the independent test of the same settings. One choice is an exception: that the decay ratio is "
            "trained at the body's rate was decided after short runs.",
            "The learned size depends on which inputs are drawn, and all seeds share one draw. What the calibration "
            "of rate and draw changed is in docs/log.md, with the tests that it passed and failed; the runs under the "
            "earlier setting are kept (study former).",
            "The size depends on how a processor rounds, too: of ten seeds of the baseline (before that calibration) "
            "that were trained on two kinds, three end at another t, by half a component or one. That is a tenth of "
            "the variance over seeds.",
            "In the λ sweep snapping follows the price, so the largest α equals λ₀. A boundary that the price holds "
            "near the middle between two integers, where the last gate is steepest and sin²(πt) nearly flat, is "
            "released only once α has outgrown what is left of λ, and by then the body, whose components would have to "
            "follow, has little of its learning rate left. Boundaries between integers at high prices in figure 2 "
            "lie there; this explanation is our interpretation, not a result.",
        ),
    ),
    Outline(
        "decay",
        "Learned decay and normalisation",
        ("decayablationbody",),
        (
            "At the usual start t₀ = 1e-4 a normalised boundary has next to no gradient (dt/dτ is 1e-4, and a second "
            "component is of no use yet). The same row from t₀ = 1 stands beside it.",
            "A learned ratio is trained at the body's learning rate. The fixed column is, for every learner, the same "
            "run: NGN's weights at the kept count. The paper does not say which weights its fixed models of other "
            "learners had.",
        ),
    ),
    Outline(
        "manifold",
        "Intrinsic dimension of manifolds",
        ("datafifteenbody", "datafifteenfullbody"),
        (
            "Short trainings select too few terms, so no stand-in of fewer steps is shown for these rows.",
            "A boundary a few hundredths above D − 1 keeps D terms. Where it stops an eighth above, a half-open term "
            "is cut and the truncated error rises; the published spread at D = 2 must have such seeds, too. Every "
            "record also holds the numerical rank of the deployed bottleneck (singular values above a thousandth of "
            "the largest).",
        ),
    ),
    Outline(
        "transfer",
        "Other structures and tasks",
        ("dataeightbody", "dataeightfullbody"),
        (
            "The paper omits optimisers, rates, batch sizes and lengths. Ours were chosen on held-out training data, "
            "never on test data, mostly by accuracy; the learned size was on the screen beside it, and it moves "
            "between settings whose accuracies differ by less than their noise. So agreement of a size is weaker "
            "evidence than agreement of an accuracy.",
        ),
    ),
    Outline(
        "depth",
        "Learned depth",
        ("dataninebody", "datatenbody"),
        (
            "The published rows are single runs, and so are the cells beside them (seed 0); the figure has ten seeds. "
            "Steps, optimiser and rates are not in the paper. They were taken from an earlier experiment and not "
            "changed after.",
            "With r = ½ throughout the last layer's output is below 2 by its formula, and the targets are not. That "
            "alone sets a floor under the error of the rows with constant r, whatever is learned.",
            "With a constant price the paper keeps all ten layers. In our runs some become the identity, and which "
            "ones changes with the seed; why is not known.",
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
            "(budget=cpu), on splits that docs/data.md names. What may be compared is the pattern: where ranks are "
            "kept, what truncation costs, and which method is ahead; never a score. Forgetting is measured on "
            "WikiText-2, not on the Pile.",
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
            "forgetting is measured on WikiText-2. What may be compared is the pattern, never a score.",
            "The paper does not say from where its frozen models have learned the form of the answers. Here they have "
            "not: weights that are frozen are those of the pretrained model.",
        ),
    ),
    Outline("own", "Beyond the paper", ()),
)
