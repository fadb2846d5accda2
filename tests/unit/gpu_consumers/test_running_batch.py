from dataclasses import replace

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import SamplingParams
from gpu_consumers.running import Running
from gpu_consumers.running_batch import RunningBatch
from gpu_consumers.sequence import Sequence
from gpu_consumers.waiting_queue import Turn

INFO = EngineInfo("test", 4, 64, 8, 257, frozenset(), kv_blocks=10, block_tokens=4)


def sequence(name: str, prompt: int, output: int = 20) -> Sequence:
    return Sequence(name, "t", (1,) * prompt, prompt + output)


def batch(info: EngineInfo = INFO) -> RunningBatch:
    return RunningBatch(info, lambda tenant: 1.0)


def admit(running_batch: RunningBatch, one: Sequence, *, decoding: bool = False) -> Running:
    running = running_batch.admit(Turn(one, 0, 1), 0)
    if decoding:
        running.computed_tokens = len(one.prefix_token_ids)
        running.output_token_ids.append(7)
    return running


def test_a_sequence_holds_the_blocks_of_its_prefix_from_the_start() -> None:
    found = batch()
    admit(found, sequence("r", 9))
    assert (found.blocks.held("t"), found.blocks.free, found.slots.free) == (3, 7, 3)


def test_what_could_not_go_on_elsewhere_holds_all_blocks_that_it_may_need_and_never_lacks_one() -> None:
    found = batch(replace(INFO, resumes_guided=False))
    guided = replace(sequence("r", 8), sampling=SamplingParams(json_schema="{}"))
    assert found.missing_blocks(replace(guided, max_tokens=41)) == 1
    running = admit(found, guided, decoding=True)
    assert (found.blocks.free, running.room_blocks, running.may_lose_slot) == (3, 0, False)
    assert found.missing_blocks(replace(guided, request_id="s")) == 4
    running.computed_tokens = guided.max_tokens - 1
    assert not found.lacks_blocks(running)
    assert admit(found, sequence("free", 8)).blocks == 2
    assert admit(batch(), guided, decoding=True).may_lose_slot


def test_it_takes_another_block_where_its_next_token_needs_one() -> None:
    found = batch()
    running = admit(found, sequence("r", 8), decoding=True)
    assert found.lacks_blocks(running)
    found.grow()
    assert (running.blocks, found.blocks.free) == (3, 7)
    running.computed_tokens += 1
    assert not found.lacks_blocks(running)


def test_an_empty_batch_admits_whatever_fits() -> None:
    assert batch().missing_blocks(sequence("r", 40)) == 0
    assert batch().missing_blocks(sequence("r", 41)) == 1


def test_beside_others_a_newcomer_finds_a_block_more_and_leaves_one_to_each_that_may_need_it() -> None:
    found = batch()
    admit(found, sequence("r", 16))
    assert found.missing_blocks(sequence("s", 16)) == 4 + 1 + 1 - 6
    found.vacate(admit(found, sequence("t", 4)))
    full = batch()
    admit(full, sequence("r", 16, output=0))
    assert full.missing_blocks(sequence("s", 16, output=0)) == 4 - 6, "neither can grow"


def test_what_leaves_gives_slot_and_blocks_back_and_the_engine_hears_of_it_once() -> None:
    found = batch()
    running = admit(found, sequence("r", 9))
    found.vacate(running)
    assert (found.blocks.free, found.slots.free, len(found)) == (10, 4, 0)
    assert running not in found
    assert (found.take_released(), found.take_released()) == ((0,), ())


def test_without_blocks_memory_is_not_counted() -> None:
    found = batch(replace(INFO, kv_blocks=0))
    running = admit(found, sequence("r", 1000), decoding=True)
    assert (running.blocks, found.blocks.free) == (0, 0)
    assert not found.lacks_blocks(running)
    assert found.missing_blocks(sequence("s", 1000)) == 0
    found.check_integrity()


def around(running_batch: RunningBatch, *tenants: str) -> RunningBatch:
    running_batch.presence.look(0, tenants, lambda tenant: False)
    return running_batch


def test_newcomers_are_expected_while_somebody_around_has_less_than_half_of_its_share() -> None:
    found = around(batch(), "t", "light")
    admit(found, sequence("r", 4))
    assert found.expects_newcomers
    alone = around(batch(), "t")
    admit(alone, sequence("r", 4))
    assert not alone.expects_newcomers
    both = around(batch(), "t", "u")
    for name, tenant in (("r", "t"), ("s", "u")):
        admit(both, replace(sequence(name, 4), tenant=tenant))
    assert not both.expects_newcomers


def test_a_flood_has_enough_with_half_of_its_share_and_who_wants_no_more_than_its_share_never() -> None:
    found = around(batch(replace(INFO, slots=8)), "t", "light")
    admit(found, sequence("r0", 4))
    assert not found.has_enough("t", waiting=9), "a quarter of its share"
    admit(found, sequence("r1", 4))
    assert found.has_enough("t", waiting=9)
    assert not found.has_enough("t", waiting=2)


def test_the_integrity_check_sees_a_block_that_leaked() -> None:
    found = batch()
    running = admit(found, sequence("r", 9))
    found.check_integrity()
    running.blocks += 1
    with pytest.raises(AssertionError, match="blocks of tenants differ"):
        found.check_integrity()
