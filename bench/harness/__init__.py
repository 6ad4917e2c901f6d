"""What the scenarios share: servers, clients, load, statistics, the report."""
