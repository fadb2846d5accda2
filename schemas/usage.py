"""What a request that has ended costs its tenant's quota. Pure."""

from __future__ import annotations

from .events import GenerationFailed, RequestRejected, TerminalEvent


def charged_tokens(terminal: TerminalEvent) -> tuple[int, int]:
    """(prompt tokens, output tokens); none of a request that was refused.

    A worker refuses too, before it runs anything: an adapter that can't be loaded, a prompt that does not fit into its
    memory, a JSON schema that it can't follow. It says so with the status of a client's error and has made no token.
    """
    if isinstance(terminal, RequestRejected):
        return 0, 0
    if isinstance(terminal, GenerationFailed) and terminal.status < 500 and not terminal.output_tokens:
        return 0, 0
    return terminal.prompt_tokens, terminal.output_tokens
