"""Adapters against PEFT: what a mixed batch answers, and which adapters are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.errors import AdapterUnavailableError
from gpu_consumers.plan import Admission, PrefillChunk, SamplingParams, StepPlan
from tests.batching import Request, run_batch
from tests.lora_adapter import make_adapter
from tests.oracle import Oracle

Directory = Callable[[str], Path]
LLAMA = "grouped"
VARIANTS = (LLAMA, "biased", "wide heads", "qwen3", "gemma", "gemma3", "phi3, partly turning", "gpt2")
FEW = {"gpt2": ["attn.c_attn"], "phi3, partly turning": ["qkv_proj", "down_proj"]}


def engine_of(
    directory: Path, *, kernels_dir: Path | None = None, places: int = 4, max_rank: int = 64, device: str = "cpu"
) -> TorchEngine:
    return load_torch_engine(
        directory, dtype="float32", device=device, slots=5, max_context_tokens=256, kernels_dir=kernels_dir,
        adapter_places=places, adapter_max_rank=max_rank, prefix_cache_bytes=1 << 20,
    )  # fmt: skip


def install(engine: TorchEngine, key: str, directory: Path, place: int = 0) -> None:
    engine.read_adapter(key, str(directory))(place)


def prompt(number: int) -> tuple[int, ...]:
    return tuple(3 + (7 * number + 11 * i) % 110 for i in range(5 + 13 * number))


def assert_equal_to_peft(requests: list[Request], model: Path, adapters: dict[str | None, Path | None]) -> None:
    compared = 0
    for name, directory in adapters.items():
        oracle = Oracle(model, adapter=directory)
        for request in requests:
            if request.adapter == name:
                expected = oracle.answer(request.tokens, request.output_tokens)
                assert request.output[: len(expected)] == expected, (name, request.prompt[:3])
                compared += len(expected)
    assert compared > 0.7 * sum(r.output_tokens for r in requests), "near ties left too little to compare"


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_sequence_of_a_mixed_batch_answers_as_peft_does_with_its_adapter(
    model_directory: Directory, tmp_path: Path, kernels_dir: Path, variant: str, compiled: bool
) -> None:
    model = model_directory(variant)
    few = FEW.get(variant, ["q_proj", "v_proj", "down_proj"])
    adapters: dict[str | None, Path | None] = {
        None: None,
        "all": make_adapter(model, tmp_path / "all", seed=1),
        "few": make_adapter(model, tmp_path / "few", seed=2, rank=20, targets=few, use_rslora=True),
    }
    engine = engine_of(model, kernels_dir=kernels_dir if compiled else None)
    for place, (key, directory) in enumerate(adapters.items()):
        if key is not None and directory is not None:
            install(engine, key, directory, place)
    requests = [
        Request(prompt(n % 4), output_tokens=16 + 5 * (n % 3), adapter=(None, "all", "few")[n % 3]) for n in range(9)
    ]
    run_batch(engine, requests, step_tokens=40)
    assert_equal_to_peft(requests, model, adapters)
    assert len({tuple(r.output[:8]) for r in requests if r.prompt == prompt(0)}) == 3, "the adapters change nothing"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_cuda_every_sequence_of_a_mixed_batch_answers_as_peft_does(
    model_directory: Directory, tmp_path: Path
) -> None:
    model = model_directory(LLAMA)
    adapters: dict[str | None, Path | None] = {None: None}
    engine = engine_of(model, device="cuda")
    for place, key in enumerate(("first", "second")):
        adapters[key] = directory = make_adapter(model, tmp_path / key, seed=place, rank=8 + 16 * place)
        install(engine, key, directory, place)
    engine.warm_up()
    requests = [Request(prompt(n % 4), 24, adapter=(None, "first", "second")[n % 3]) for n in range(9)]
    run_batch(engine, requests, step_tokens=40)
    assert_equal_to_peft(requests, model, adapters)


def test_ranks_and_scales_of_single_modules_are_those_of_peft(model_directory: Directory, tmp_path: Path) -> None:
    model = model_directory(LLAMA)
    adapter = make_adapter(
        model, tmp_path / "a", rank=4,
        rank_pattern={r"layers\.0\.self_attn\.q_proj": 32, "down_proj": 2},
        alpha_pattern={"gate_proj": 3, "k_proj": 40},
    )  # fmt: skip
    engine = engine_of(model)
    install(engine, "a", adapter)
    requests = run_batch(engine, [Request(prompt(n), 24, adapter="a") for n in range(4)])
    assert_equal_to_peft(requests, model, {"a": adapter})


def test_an_adapter_of_some_layers_leaves_the_others_alone(model_directory: Directory, tmp_path: Path) -> None:
    model = model_directory(LLAMA)
    adapter = make_adapter(model, tmp_path / "a", targets=["q_proj", "up_proj"], layers_to_transform=[1])
    engine = engine_of(model)
    install(engine, "a", adapter)
    requests = run_batch(engine, [Request(prompt(n), 24, adapter="a") for n in range(4)])
    assert_equal_to_peft(requests, model, {"a": adapter})


def test_neighbours_with_adapters_change_nothing_for_a_sequence(
    model_directory: Directory, tmp_path: Path, kernels_dir: Path
) -> None:
    engine = engine_of(model_directory(LLAMA), kernels_dir=kernels_dir)
    install(engine, "a", make_adapter(model_directory(LLAMA), tmp_path / "a"))
    alone = run_batch(engine, [Request(prompt(3), 30)])[0].output
    among = run_batch(engine, [Request(prompt(3), 30), *(Request(prompt(n), 30, adapter="a") for n in range(4))])
    assert among[0].output == alone


def test_a_place_holds_the_newest_adapter_that_was_put_there(model_directory: Directory, tmp_path: Path) -> None:
    model = model_directory(LLAMA)
    engine = engine_of(model, places=1)
    first, second = (make_adapter(model, tmp_path / str(seed), seed=seed) for seed in (1, 2))
    install(engine, "first", first)
    install(engine, "second", second)
    requests = run_batch(engine, [Request(prompt(1), 8, adapter=key) for key in ("first", "second")])
    assert requests[0].failure == "the adapter first is in none of this engine's 1 places"
    assert_equal_to_peft(requests[1:], model, {"second": second})


def test_keys_and_values_are_shared_within_an_adapter_alone(model_directory: Directory, tmp_path: Path) -> None:
    model = model_directory(LLAMA)
    engine = engine_of(model)
    install(engine, "a#1", make_adapter(model, tmp_path / "a"))
    tokens = tuple(range(3, 103))
    admission = Admission(0, SamplingParams(), 128, tenant="acme", adapter="a#1")
    engine.execute(StepPlan(admitted=(admission,), prefills=(PrefillChunk(0, tokens, 0, True),)))
    assert engine.cached_tokens("acme", tokens, "a#1") == 64
    assert engine.cached_tokens("acme", tokens) == engine.cached_tokens("acme", tokens, "a#2") == 0


@pytest.fixture(scope="module")
def plain(model_directory: Directory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(model_directory(LLAMA), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def engine(model_directory: Directory) -> TorchEngine:
    return engine_of(model_directory(LLAMA), max_rank=16)


def altered(adapter: Path, to: Path, **options: Any) -> Path:
    """A copy of the adapter with other options in its configuration."""
    shutil.copytree(adapter, to)
    file = to / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | options))
    return to


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_dora": True}, r"is a DoRA adapter \(use_dora\)"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"modules_to_save": ["lm_head"]}, "replaces whole modules"),
        ({"trainable_token_indices": [1]}, "changes token embeddings"),
        ({"layer_replication": [[0, 2]]}, "repeats layers"),
        ({"init_lora_weights": "pissa"}, "changes the model's own weights"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"r": 0}, "r in adapter_config.json is 0"),
        ({"r": 8.5}, "r in adapter_config.json is 8.5; it is a whole number"),
        ({"lora_alpha": "much"}, "lora_alpha in adapter_config.json is 'much'"),
        ({"rank_pattern": {"(": 8}}, "which is no pattern"),
        ({"rank_pattern": ["q_proj"]}, "rank_pattern in adapter_config.json is no object"),
        ({"r": 4}, r"lora_A of model.layers.0.mlp.down_proj is \[8, 96\], and this model takes \[4, 96\]"),
        ({"r": 32}, r"its rank is 32, and places are made for 16 \(HEADRACE_ADAPTER_MAX_RANK\)"),
    ],
)
def test_what_is_no_plain_lora_is_refused(
    engine: TorchEngine, plain: Path, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AdapterUnavailableError, match=reason):
        engine.read_adapter("a", str(altered(plain, tmp_path / "a", **options)))


def test_an_adapter_of_another_model_is_refused(
    engine: TorchEngine, model_directory: Directory, tmp_path: Path
) -> None:
    with pytest.raises(AdapterUnavailableError, match=r"h\.0\.attn\.c_attn, which is not one of the linear"):
        engine.read_adapter("a", str(make_adapter(model_directory("gpt2"), tmp_path / "gpt2")))
    with pytest.raises(AdapterUnavailableError, match="it was made for another model"):
        engine.read_adapter("a", str(make_adapter(model_directory("wide heads"), tmp_path / "wide")))


@pytest.mark.parametrize("module", ["lm_head", "embed_tokens"])
def test_an_adapter_of_the_embedding_or_the_head_is_refused(
    engine: TorchEngine, model_directory: Directory, tmp_path: Path, module: str
) -> None:
    with pytest.warns(UserWarning, match="save_embedding_layers"):
        adapter = make_adapter(model_directory(LLAMA), tmp_path / "a", targets=[module])
    with pytest.raises(AdapterUnavailableError, match=rf"{module}.*, which is no matrix of plain LoRA"):
        engine.read_adapter("a", str(adapter))


def test_files_that_are_missing_or_broken_are_told(engine: TorchEngine, plain: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterUnavailableError, match=r"^adapter_config\.json can't be read: No such file"):
        engine.read_adapter("a", str(tmp_path / "nowhere"))
    torn = altered(plain, tmp_path / "torn")
    (torn / "adapter_config.json").write_text("[]")
    with pytest.raises(AdapterUnavailableError, match="holds no JSON object"):
        engine.read_adapter("a", str(torn))
    without = altered(plain, tmp_path / "without")
    (without / "adapter_model.safetensors").unlink()
    with pytest.raises(AdapterUnavailableError, match=r"^there is no adapter_model\.safetensors$"):
        engine.read_adapter("a", str(without))
    broken = altered(plain, tmp_path / "broken")
    whole = (broken / "adapter_model.safetensors").read_bytes()
    (broken / "adapter_model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AdapterUnavailableError, match=r"adapter_model\.safetensors can't be read"):
        engine.read_adapter("a", str(broken))


def test_weights_that_are_missing_or_no_numbers_are_refused(engine: TorchEngine, plain: Path, tmp_path: Path) -> None:
    weights = load_file(plain / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight"

    def saved(directory: str, changed: dict[str, torch.Tensor]) -> str:
        copy = altered(plain, tmp_path / directory)
        save_file(changed, copy / "adapter_model.safetensors")
        return str(copy)

    with pytest.raises(AdapterUnavailableError, match=r"lora_B of model\.layers\.1\.self_attn\.o_proj is missing"):
        engine.read_adapter("a", saved("less", {key: value for key, value in weights.items() if key != name}))
    with pytest.raises(AdapterUnavailableError, match="not numbers"):
        engine.read_adapter("a", saved("nan", weights | {name: torch.full_like(weights[name], float("nan"))}))
    with pytest.raises(AdapterUnavailableError, match="there are no LoRA weights"):
        engine.read_adapter("a", saved("none", {}))
    with pytest.raises(AdapterUnavailableError, match=r"it changes model\.layers\.7\.self_attn\.o_proj"):
        engine.read_adapter("a", saved("deep", weights | {name.replace(".1.", ".7."): weights[name].clone()}))
