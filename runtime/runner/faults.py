class FaultReport: pass
def fault_report(*a): return None
