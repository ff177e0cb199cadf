"""The language tasks on the small random model: training, scoring, resuming; packed rows, generation, perplexity."""

import math
from types import SimpleNamespace

import pytest
import torch
from stopping import resumed

import ngn
from experiments.config.compose import compose
from experiments.core.blocks import ConfigError
from experiments.models.trainer import StudyTrainer
from experiments.tasks import make_task
from experiments.tasks.language.base import tiny_base
from experiments.tasks.language.generation import cut_at_stop, generate_greedy
from experiments.tasks.language.packing import pack, token_losses, use_by_sequence
from experiments.tasks.language.perplexity import perplexity, perplexity_chunks
from experiments.tasks.language.task import AdaptationTask

TASKS = ("wikisql_easy", "wikisql_hard", "spider", "gsm8k", "squad")
TRAIN = SimpleNamespace(batch=8)


def made(task="wikisql_easy", gate="lora", **settings):
    own = {"max_new_tokens": 12, "perplexity_tokens": 64, "train_examples": None, **settings}
    keys = {f"task.{name}": value for name, value in own.items()} | {"gate.K": 4, "progress": "never"}
    config = compose({"task": task, "gate": gate, "profile": "smoke"}, keys)
    made = make_task(config, torch.device("cpu"))
    assert isinstance(made, AdaptationTask)
    return made, ngn.Learner(made.model(config.gate, 0, lambda group: ngn.CountGate(4, t0=1.0, delta=-0.5)))


def trainer(task, learner, steps, **rest):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2, accumulate=rest.pop("accumulate", 1))
    train = SimpleNamespace(batch=rest.pop("batch", 8))
    return StudyTrainer(learner, task.batches(train, 0), task.loss, plan, weight=task.weight, progress="never", **rest)


@pytest.mark.parametrize("gate", ["lora", "adapter"])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_trained_and_scored(name, gate):
    task, learner = made(name, gate)
    before = float(task.evaluate(learner.eval())["nats"])
    fit = trainer(task, learner, 3)
    fit.fit()
    scores = fit.evaluate(task.evaluate)
    assert list(scores) == list(task.n)
    assert all(value.dtype == torch.float64 and value.isfinite() for value in scores.values())
    assert float(scores["nats"]) < before
    assert task.info.name == name
    assert len(learner.count()) == {"lora": 4, "adapter": 2}[gate]
    assert [p for p in learner.parameters() if p.requires_grad]


def test_the_untrained_model_is_the_base_model():
    task, learner = made()
    batch = task.batches(TRAIN, 0).at(0)
    with torch.no_grad():
        assert torch.equal(task.loss(learner.eval(), batch), task.loss(task.base.model, batch))


def test_nats_are_the_mean_over_all_answer_tokens():
    task, learner = made()
    learner.eval()
    with torch.no_grad():
        total = sum(float(task.loss(learner, (batch, None))) * len(batch.targets) for batch in packs(task))
    expected = total / task.n["nats"]
    assert float(task.evaluate(learner)["nats"]) == pytest.approx(expected, rel=1e-5)
    assert task.n["nats"] == sum(len(batch.targets) for batch in packs(task))


def packs(task):
    return [pack([each], torch.device("cpu")) for each in task.held]


def test_a_run_that_was_stopped_in_mid_epoch_ends_bit_equal(tmp_path):
    resumed(lambda **settings: trainer(*made(), steps=11, **settings), tmp_path, 9)  # an epoch has eight


def test_validation_questions_are_held_out_of_the_training_questions(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 8})
    everything, validation = (made(split=split)[0] for split in ("test", "validation"))
    assert validation.train + validation.held == everything.train
    assert len(validation.held) == 8


def test_limits_on_tokens_take_the_first_that_fit(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 4})
    everything = made()[0].train
    sizes = [len(prompt) + len(target) for prompt, target in everything]
    assert made(train_tokens=sum(sizes[:5]))[0].train == everything[:5]
    short = sorted(sizes)[len(sizes) // 2]
    limited = made(max_tokens=short)[0].train
    assert limited == [each for each, size in zip(everything, sizes, strict=True) if size <= short]
    with pytest.raises(ConfigError, match="no question is left to train on"):
        made(max_tokens=1)


def test_gradient_checkpointing_changes_nothing_but_memory(monkeypatch):
    def gradient():
        task, learner = made()
        task.loss(learner.train(), task.batches(TRAIN, 0).at(0)).backward()
        return torch.cat([p.grad.flatten() for p in learner.body_parameters()])

    plain, fresh = gradient(), AdaptationTask.fresh

    def recomputing(task, *given):
        task.recomputes = True
        return fresh(task, *given)

    monkeypatch.setattr(AdaptationTask, "fresh", recomputing)
    torch.testing.assert_close(gradient(), plain)


CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base():
    return tiny_base(CPU)


def sequences(base, count=5):
    draw = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, 30, (count, 2), generator=draw).tolist()
    return [tuple(torch.randint(0, 256, (n,), generator=draw).tolist() for n in pair) for pair in lengths]


def test_packed_sequences_are_as_one_by_one(base):
    together = sequences(base)
    packed = token_losses(base.model, pack(together, CPU))
    alone = torch.cat([token_losses(base.model, pack([each], CPU)) for each in together])
    assert (packed - alone).abs().max() < 1e-5
    plain = []
    for prompt, target in together:
        logits = base.model(torch.tensor([prompt + target])).logits[0, len(prompt) - 1 : -1]
        plain.append(torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="none"))
    assert (packed - torch.cat(plain)).abs().max() < 1e-5
    model = base.shared_copy()
    model.set_attn_implementation("sdpa")  # transformers' own way to pack
    assert (packed - token_losses(model, pack(together, CPU))).abs().max() < 1e-5


def test_what_looks_back_less_is_refused_where_that_matters():
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = MistralForCausalLM(MistralConfig(**sizes, num_key_value_heads=2, vocab_size=50, sliding_window=6)).eval()
    tokens = torch.arange(10).tolist()
    alone = model(torch.tensor([tokens[:6]])).logits[0, 1:5].log_softmax(-1)
    use_by_sequence(model)
    short = token_losses(model, pack([(tokens[:2], tokens[2:6])] * 2, CPU))
    assert torch.allclose(short[:4], -alone[torch.arange(4), torch.tensor(tokens[2:6])], atol=1e-5)
    with pytest.raises(ConfigError, match="looks back 6 tokens, but a sequence has 10"):
        token_losses(model, pack([(tokens[:2], tokens[2:])], CPU))


@pytest.mark.parametrize("rows", [2, 8])
def test_a_batch_gives_each_prompt_its_single_answer(base, rows):
    prompts = [base.tokenizer(text)["input_ids"] for text in ("a", "what is it?", "bb", "a longer one than the others")]
    alone = [generate_greedy(base.model, base, [prompt], longest=12)[0] for prompt in prompts]
    done = []
    assert generate_greedy(base.model, base, prompts, longest=12, rows=rows, answered=done.append) == alone
    assert done == [*range(rows, len(prompts), rows), len(prompts)]
    expected = base.model.generate(
        torch.tensor([prompts[1]]), max_new_tokens=12, do_sample=False, pad_token_id=base.end[0]
    )[0, len(prompts[1]) :]
    assert alone[1] == base.tokenizer.decode(expected, skip_special_tokens=True).strip()


class Scripted(torch.nn.Module):
    """A model that writes given texts for any prompt. The first byte of the prompt selects the text."""

    def __init__(self, base, texts):
        super().__init__()
        ids = {text: base.tokenizer(text)["input_ids"] for pair in texts.items() for text in pair}
        self.script = {ids[key][0]: ids[text] for key, text in texts.items()}
        self.base, self.widths = base, []

    def forward(self, input_ids, past_key_values, **kwargs):
        if not self.widths:
            self.rows, self.at = [row[row != self.base.end[0]][0].item() for row in input_ids], 0
        self.widths.append(len(input_ids))
        logits = torch.zeros(len(input_ids), 1, len(self.base.tokenizer))
        past_key_values.batch_select_indices = self.keep
        for row, key in enumerate(self.rows):
            text = [*self.script[key], self.base.end[0]]
            logits[row, 0, text[min(self.at, len(text) - 1)]] = 1
        self.at += 1
        return type("Output", (), {"logits": logits})

    def keep(self, rows):
        self.rows = [self.rows[row] for row in rows.tolist()]


def test_answers_end_at_the_end_of_text_or_a_stop_string_and_cost_no_more_then(base):
    model = Scripted(base, {"a": "one\ntwo", "b": "four five", "c": "x"})
    prompts = [base.tokenizer(text)["input_ids"] for text in "abc"]
    assert generate_greedy(model, base, prompts, longest=20, stops=("\n",)) == ["one", "four five", "x"]
    assert model.widths == [3, 3, 2, 2, 1, 1, 1, 1, 1, 1]


def test_a_stop_string_may_come_first():
    assert cut_at_stop("Question: x", ["Question:", "\n"]) == ""
    assert cut_at_stop("a\nQuestion:", ["Question:", "\n"]) == "a"


def test_perplexity_is_that_of_all_predicted_tokens(base):
    text = "the cat sat on the mat and the dog on the log " * 4
    parts = perplexity_chunks(base, [text, "another"], tokens=100, context=40)
    assert [len(part) for part in parts] == [40, 40, 23]
    assert sum(len(part) - 1 for part in parts) == 100
    total = 0.0
    for part in parts:
        logits = base.model(torch.tensor([part])).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, torch.tensor(part[1:]), reduction="sum"))
    assert perplexity(base.model, parts, CPU) == pytest.approx(math.exp(total / 100), rel=1e-5)
