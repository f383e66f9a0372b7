"""Models side by side: means, paired differences, agreement."""

import numpy as np
import pytest

from schemas.messages import UsageError
from training.evaluation.evaluate import evaluate_matrices
from training.evaluation.studies import compare_models
from training.metrics.intervals import difference_interval
from training.metrics.spread import spearman
from training.report.sections import comparison_lines

WHERE = {"dataset": "diy@v1", "split": "test"}


def contestant(name, noise, documents=range(40)):
    """A model whose similarity of a linked pair is 1 plus noise."""
    matrices, links = [], []
    for document in documents:
        numbers = np.random.default_rng([document, int(100 * noise)])
        matrices.append(np.eye(4) + noise * numbers.normal(size=(4, 4)))
        links.append(np.stack([np.arange(4)] * 2, axis=1))
    ids = [f"d{document}" for document in documents]
    return {name: evaluate_matrices(ids, matrices, links, where="here")}


def test_differences_are_to_the_first_and_paired():
    evaluations = contestant("good", 0.3) | contestant("worse", 2.0)
    found = compare_models(evaluations, **WHERE)
    auc = [np.array(list(each.document_auc.values())) for each in evaluations.values()]
    assert found.models[0].differences == {} and found.models[0].means == evaluations["good"].mean
    assert found.models[1].differences["auc"] == difference_interval(auc[1] - auc[0])
    assert found.models[1].differences["auc"].high < 0
    assert found.agreement[0][1] == pytest.approx(found.agreement[1][0])
    assert found.agreement[1][0] == pytest.approx(spearman(*auc))
    assert found.agreement[0][0] in (None, pytest.approx(1.0))


def test_only_common_documents_are_compared():
    found = compare_models(contestant("a", 1.0, range(30)) | contestant("b", 2.0, range(10, 40)), **WHERE)
    assert found.documents == tuple(f"d{place}" for place in range(10, 30)) and found.left_out == 20
    assert "20 documents; 20 were not scored with every model" in comparison_lines(found)[-1]


def test_what_cannot_be_compared():
    with pytest.raises(UsageError, match="at least two"):
        compare_models(contestant("a", 1.0), **WHERE)
    with pytest.raises(UsageError, match="no document"):
        compare_models(contestant("a", 1.0, range(3)) | contestant("b", 1.0, range(3, 6)), **WHERE)


def test_the_text_has_every_number_and_the_published_ones():
    found = compare_models(contestant("a", 1.0) | contestant("b", 2.0), **WHERE)
    text = "\n".join(comparison_lines(found))
    difference, agreement = found.models[1].differences["auc"], found.agreement[0][1]
    numbers = (*(result.means["auc"].value for result in found.models), difference.mean)
    assert [number for number in numbers if f"{number:.1f}".replace("-", "−") not in text] == []
    assert f"{agreement:.2f}".replace("-", "−") in text and "Hessel et al. 2019, table 3" in text
