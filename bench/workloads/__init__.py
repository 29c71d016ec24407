"""The workloads: what each one runs, and the verification of its answers."""
