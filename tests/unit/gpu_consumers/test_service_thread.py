import asyncio

from gpu_consumers.service_thread import ServiceThread


async def test_the_loop_hears_of_a_threads_end_and_of_its_error() -> None:
    def fails() -> None:
        raise RuntimeError("why")

    for target, failure in ((lambda: None, None), (fails, "why")):
        ended = asyncio.Event()
        thread = ServiceThread("part", target, ended)
        thread.start()
        await asyncio.wait_for(ended.wait(), 10)
        thread.join(10)
        assert (None if thread.failure is None else str(thread.failure)) == failure
