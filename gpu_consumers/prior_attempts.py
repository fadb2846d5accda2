"""What earlier workers left of a request: the fold of its token log, as a worker that takes over sees it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.events import GenerationStarted, TokenLogEvent, TokensGenerated
from schemas.token_log import TokenLog

BARREN_ATTEMPTS_ALLOWED = 3


@dataclass(slots=True)
class PriorAttempts:
    """`apply` the events in log order.

    barren_attempts: how many attempts in a row, up to the newest, were started and added no token. A request that
        kills its worker does so every time at the same token: it is the only kind that gets to several, while one
        whose workers were stopped or killed for other reasons adds tokens in between.
    """

    log: TokenLog = field(default_factory=TokenLog)
    barren_attempts: int = 0

    def apply(self, event: TokenLogEvent) -> None:
        counted = self.log.apply(event)
        if isinstance(counted, GenerationStarted):
            self.barren_attempts += 1
        elif isinstance(counted, TokensGenerated) and counted.token_ids:
            self.barren_attempts = 0

    @property
    def is_deadly(self) -> bool:
        """Its worker died each time it was tried: it must not be tried again."""
        return self.barren_attempts >= BARREN_ATTEMPTS_ALLOWED
