"""Getting the newcomer's model, with a progress bar where there is something to wait for."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from models.smollm2 import FetchProgress, ensure_smollm2


def ensure_smollm2_with_progress(cache_dir: Path, console: Console) -> Path:
    """The model's directory in the cache. Blocks while it is fetched and converted. Raises a ModelError."""
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True)
    task: TaskID | None = None
    said = ""

    def report(progress: FetchProgress) -> None:
        nonlocal task, said
        if not console.is_terminal:
            if progress.message != said:
                console.print(progress.message, markup=False, highlight=False)
            said = progress.message
            return
        if task is None:
            bar.start()
            task = bar.add_task(progress.message, total=1.0)
        bar.update(task, completed=progress.fraction, description=progress.message)

    try:
        return ensure_smollm2(cache_dir, report)
    finally:
        if task is not None:  # it ends with a new line, even where it never began
            bar.stop()
