"""What a spec does wrong though it is well-formed: one function a finding, its docstring the page that explains it."""
