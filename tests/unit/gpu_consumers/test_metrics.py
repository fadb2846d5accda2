from prometheus_client import generate_latest

from gpu_consumers.metrics import WorkerMetrics


def test_metrics_have_vllms_names_with_our_prefix_and_say_whose_they_are() -> None:
    metrics = WorkerMetrics(deployment="chat-v1", worker="w1")
    metrics.running.set(3)
    metrics.finished("length")
    text = generate_latest(metrics.registry).decode()
    whose = 'deployment="chat-v1",worker="w1"'
    assert f"headrace:num_requests_running{{{whose}}} 3.0" in text
    assert 'headrace:request_success_total{deployment="chat-v1",finished_reason="length",worker="w1"} 1.0' in text
    for name in ("num_requests_waiting", "time_to_first_token_seconds", "inter_token_latency_seconds"):
        assert f"# HELP headrace:{name} " in text


def test_two_workers_of_one_process_do_not_share_metrics() -> None:
    one, two = (WorkerMetrics(deployment="d", worker=name) for name in ("one", "two"))
    one.steps.inc()
    assert b"headrace:engine_steps_total{" in generate_latest(two.registry)
    assert b'worker="one"' not in generate_latest(two.registry)


def test_use_of_memory_is_a_part_of_what_there_is_and_none_where_none_is_counted() -> None:
    metrics = WorkerMetrics(deployment="d", worker="w")
    metrics.memory(3, 12)
    text = generate_latest(metrics.registry).decode()
    assert 'headrace:kv_cache_usage_perc{deployment="d",worker="w"} 0.25' in text
    assert 'headrace:kv_cache_blocks_used{deployment="d",worker="w"} 3.0' in text
    metrics.memory(0, 0)
    assert 'headrace:kv_cache_usage_perc{deployment="d",worker="w"} 0.0' in generate_latest(metrics.registry).decode()
