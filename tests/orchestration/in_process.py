"""Steps in this process, which has imported their libraries, by Dagster's own protocol: nothing of it is imitated."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster_pipes import PipesContext, PipesDefaultContextLoader, PipesDefaultMessageWriter, PipesMappingParamsLoader

from orchestration.config import RaySettings, RayWhere
from orchestration.dagster.external import STEPS, report
from orchestration.dagster.pipes import FileReader, StepPipes
from orchestration.steps import Step, as_json, from_json


class InProcess(StepPipes):
    """Does the steps of an asset in this process."""

    def __init__(self) -> None:
        super().__init__(RaySettings())

    def do(
        self, context: dg.AssetExecutionContext, *steps: Step, where: RayWhere = RayWhere.SUBPROCESS
    ) -> list[dg.MaterializeResult[Any]]:
        with dg.open_pipes_session(
            context=context.op_execution_context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=FileReader(),
            extras={STEPS: [as_json(step) for step in steps]},
        ) as session:
            parameters = PipesMappingParamsLoader(session.get_bootstrap_env_vars())
            with PipesContext(parameters, PipesDefaultContextLoader(), PipesDefaultMessageWriter()) as pipes:
                report([from_json(each) for each in pipes.get_extra(STEPS)], pipes)
        return [each for each in session.get_reported_results() if isinstance(each, dg.MaterializeResult)]
