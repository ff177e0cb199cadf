"""Packed sequences, batched generation and perplexity equal the results for single sequences."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from experiments.core.blocks import ConfigError
from experiments.tasks.language.base import tiny_base
from experiments.tasks.language.generation import cut_at_stop, generate_greedy
from experiments.tasks.language.packing import pack, token_losses, use_by_sequence
from experiments.tasks.language.perplexity import perplexity, perplexity_chunks

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


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, *(t.numel() for t in tree_leaves(made) if isinstance(t, torch.Tensor)), 0)
        return made


def test_no_tensor_grows_with_the_square_of_a_packed_row(base):
    batch = pack([([1, 2], [3, 4, 5])] * 60, CPU)
    with Largest() as largest:
        token_losses(base.model, batch)
    assert largest.numbers <= max(len(batch.targets) * len(base.tokenizer), batch.ids.numel() * 48)


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
