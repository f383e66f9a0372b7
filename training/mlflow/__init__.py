"""All of MLflow: runs, the registry, the gate, promotion, champions, copies."""
