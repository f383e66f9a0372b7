"""The contract between the halves of the project: tables, manifests, codecs, versions and the lake.

Everything that `pipelines` writes and `training` reads is described here once. Modules of this package
import pyarrow, numpy and Pillow alone, so that both halves, and a bare GPU machine, can import them.
"""
