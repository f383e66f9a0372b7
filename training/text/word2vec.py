"""Word vectors trained on the training split itself (Alikhani 2022: gensim's word2vec, window 10, minimum count 1).

One thread and a fixed order of sentences: the same sentences and seed give the same vectors. gensim is imported only
here and only when asked for; the training core does not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from schemas.errors import ConfigError
from training.text.tokens import tokenize

WINDOW, MIN_COUNT = 10, 1


def train_word2vec(
    texts: Iterable[str], *, dimensions: int, seed: int
) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield the words of some sentences with vectors of `dimensions` numbers learned from them (CBOW, 5 passes).

    Raises:
        ConfigError: gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as problem:
        raise ConfigError("text.word_vectors = 'word2vec': gensim is not installed; pip install gensim") from problem
    sentences = [tokens for tokens in map(tokenize, texts) if tokens]
    if not sentences:
        return
    model = Word2Vec(
        sentences=sentences,
        vector_size=dimensions,
        window=WINDOW,
        min_count=MIN_COUNT,
        seed=seed & 0x7FFFFFFF,
        workers=1,
    )
    for word in model.wv.index_to_key:
        yield word, np.asarray(model.wv[word], np.float32)
