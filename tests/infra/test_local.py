"""The description of the cluster on one machine, without its programs."""

import dataclasses
from pathlib import Path

import pytest
from cluster.local.deployment import MACHINES, stages, write_settings
from cluster.local.plan import Machine, Plan, Secrets
from cluster.local.programs import Engine, Programs

from orchestration.config import SETTINGS_VARIABLE, load_settings


@pytest.fixture(params=list(Engine))
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    machines = {name: Machine(name=name, address=f"127.77.0.{number}") for number, name in enumerate(MACHINES, 2)}
    folder = tmp_path / "programs"
    programs = Programs(
        java="java", engine=folder, job_server=folder, object_store="versitygw", initdb="initdb", postgres="postgres"
    )
    secrets = Secrets(s3_key="key", s3_secret="hidden-1", postgres_password="hidden-2", ray_token="hidden-3")
    return Plan(
        engine=request.param,
        home=tmp_path,
        scratch=tmp_path,
        machines=machines,
        programs=programs,
        secrets=secrets,
    )


def test_dagster_reads_the_settings_of_the_cluster(plan: Plan) -> None:
    write_settings(plan)
    settings = load_settings({SETTINGS_VARIABLE: str(plan.home / "settings.yaml")})
    assert settings.beam.runner == plan.engine and settings.beam.options
    assert settings.lake == "s3://lake/lake"
    assert settings.tracking_uri == "http://127.77.0.5:5000"


def test_every_service_has_a_name_and_an_address_of_its_own(plan: Plan) -> None:
    services = [service for stage in stages(plan) for service in stage]
    assert len({service.name for service in services}) == len(services)
    listening = [(service.host, service.port) for service in services if service.port]
    assert len(set(listening)) == len(listening)


def test_no_secret_is_on_a_command(plan: Plan) -> None:
    hidden = [value for value in dataclasses.asdict(plan.secrets).values() if value.startswith("hidden")]
    for stage in stages(plan):
        for service in stage:
            assert not [value for value in hidden if any(value in part for part in service.command)]
