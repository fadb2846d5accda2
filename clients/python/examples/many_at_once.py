"""With asyncio: many answers at once, over Kafka and over one WebSocket.

python many_at_once.py BOOTSTRAP_SERVERS TENANT GATEWAY_URL API_KEY MODEL
"""

import asyncio
import sys

from headrace_client import AsyncProducer, Backoff, Stream

PROMPTS = [f"question {number}" for number in range(4)]


async def main(servers: str, tenant: str, url: str, api_key: str, model: str) -> None:
    async with AsyncProducer(servers, source="many-at-once") as producer:
        asked = [
            await producer.submit(tenant=tenant, model=model, prompt=prompt, max_output_tokens=32) for prompt in PROMPTS
        ]
        # Over quota, or no room? Ask again, when the server says, five times.
        answers = (producer.answer(each, timeout=60, retry=Backoff(attempts=5)) for each in asked)
        for finished in await asyncio.gather(*answers):
            print(f"kafka: {finished.text}")
    async with Stream(url, api_key=api_key) as stream:
        creating = (stream.create(model=model, input=prompt, max_output_tokens=32, timeout=60) for prompt in PROMPTS)
        responses = await asyncio.gather(*creating)
        for answer in await asyncio.gather(*(response.answer() for response in responses)):
            print(f"websocket: {answer.text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
