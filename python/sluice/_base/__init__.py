"""What all floors stand on: arguments, devices, dims, dtypes of numbers, sizes, nests, and the state of tracing. Nothing here makes a tensor."""
