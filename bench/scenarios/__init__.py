"""Each module: NAME, and run(env) -> rows."""

from . import (bigkey, churn, cluster, connections, cpu, events, flood, idle, memory, persist, regions, replication,
               rocks, sites, storm)

ALL = (cpu, connections, memory, storm, churn, bigkey, idle, rocks, flood, persist, replication, events, cluster, regions, sites)
