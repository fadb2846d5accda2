"""Read the beginning of an answer over one WebSocket and the rest of it over another, as after a restart.

python stream_with_resume.py GATEWAY_URL API_KEY MODEL PROMPT
"""

import sys

from headrace_client import OutputTextDelta, ResponseEnd, SyncStream


def main(url: str, api_key: str, model: str, prompt: str) -> None:
    with SyncStream(url, api_key=api_key) as stream:
        response = stream.create(model=model, input=prompt, max_output_tokens=64, timeout=60)
        for event in response:
            if isinstance(event, OutputTextDelta):
                print(event.delta, end="", flush=True)
                break
    # Two values are all that it takes to go on, on any gateway, for as long as the log is kept.
    response_id, seen = response.response_id, response.last_sequence_number
    with SyncStream(url, api_key=api_key) as stream:
        for event in stream.resume(response_id, starting_after=seen, timeout=60):
            if isinstance(event, OutputTextDelta):
                print(event.delta, end="", flush=True)
            elif isinstance(event, ResponseEnd):
                print(f"\n{event.status}: {event.response['usage']['output_tokens']} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
