"""Raw texts and pictures, as a trained model reads them: here the pipeline's extractors and a model meet.

extraction.py   what a model reads of raw documents, extracted by the pipeline's own steps
documents.py    links of the documents of a file
corpora.py      a corpus or an archive of a user's own, built as a data set with the features that a model reads
queries.py      texts and pictures that are searched for
archive.py      an index that is open for searches
"""
