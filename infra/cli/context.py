"""What several commands need: settings with their warnings, and the registry to read or change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from eventlog.admin import LogAdmin
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from infra.seed import read_registry
from infra.settings import Settings, load_settings
from infra.wiring import broker_profile, connected, topics_of


def settings_with_warnings() -> Settings:
    """The settings; variables that look like one and are none are named on standard error.

    Raises SettingInvalid.
    """
    settings, warnings = load_settings()
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    return settings


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The registry as it is now, and the means to change it. `profile` knows the schema ids that are in the log."""

    profile: BrokerProfile
    admin: LogAdmin
    registry: Registry


@contextmanager
def registry_access() -> Iterator[RegistryAccess]:
    """Of the Kafka that the settings name, or of what `headrace up` runs. Raises NothingRuns, EventLogError."""
    settings = connected(settings_with_warnings())
    profile = broker_profile(settings)
    with LogAdmin(profile, topics_of(settings)) as admin:
        admin.create_shared_topics()  # on a fresh cluster the first command is one of these
        yield RegistryAccess(profile, admin, read_registry(profile, "headrace-command-line"))
