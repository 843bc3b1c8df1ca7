"""JobSet, TFJob, plain Pods, and Alibaba ECI."""
