"""An AI Platform Job as a spec, from which `jobs.targets.vertex` makes its successor."""
