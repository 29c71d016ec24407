"""The workloads: what each one does, the operations it is made of, and the check of every answer."""
