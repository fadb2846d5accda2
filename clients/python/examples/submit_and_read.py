"""Submit requests over Kafka and print the answers as they come.

python submit_and_read.py BOOTSTRAP_SERVERS TENANT MODEL PROMPT [PROMPT ...]
"""

import sys
from datetime import timedelta

from headrace_client import Finished, Producer, TextDelta


def main(servers: str, tenant: str, model: str, *prompts: str) -> None:
    with Producer(servers, source="submit-and-read") as producer:
        for prompt in prompts:
            producer.submit(
                tenant=tenant, model=model, prompt=prompt, max_output_tokens=64, deadline=timedelta(minutes=1)
            )
        for result in producer.results(tenant, timeout=60):
            match result:
                case TextDelta(submission=submission, text=text):
                    print(f"{submission.response_id[-8:]} + {text!r}")
                case Finished(submission=submission, finish_reason=reason, text=text):
                    print(f"{submission.response_id[-8:]} = {text!r} ({reason})")
                case ended:  # Failed, Rejected, NotDelivered
                    print(f"{ended.submission.response_id[-8:]} ! {ended.error()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
