"""Each module: NAME, and run(env) -> rows."""

from . import bigkey, churn, cluster, cpu, events, flood, idle, memory, persist, replication, rocks, storm

ALL = (cpu, memory, storm, churn, bigkey, idle, rocks, flood, persist, replication, events, cluster)
