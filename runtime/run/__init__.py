"""Running a build: bind a case to a launch, execute it, judge every output, report."""
