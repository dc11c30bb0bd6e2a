"""Results on disk and on paper: Parquet with provenance, clustered errors, tables."""

from multidraft.results.clustered import Mean, clustered_mean, paired_difference
from multidraft.results.provenance import SCHEMA, canonical, digest, header, made_by
from multidraft.results.store import Results, read, write
from multidraft.results.tables import Table, pivot

__all__ = [
    "SCHEMA",
    "Mean",
    "Results",
    "Table",
    "canonical",
    "clustered_mean",
    "digest",
    "header",
    "made_by",
    "paired_difference",
    "pivot",
    "read",
    "write",
]
