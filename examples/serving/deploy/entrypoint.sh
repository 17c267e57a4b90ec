#!/bin/sh
# Serves /models, or $SLUICE_MODELS, on every address of the container; arguments are options of sluice-serve.
# The container's own network is the border: publish its ports where they should be seen, and no further.
set -eu
exec "${SLUICE_SERVE:-sluice-serve}" --model-repository "${SLUICE_MODELS:-/models}" \
  --http-address "${SLUICE_ADDRESS:-0.0.0.0}" --grpc-address "${SLUICE_ADDRESS:-0.0.0.0}" \
  --metrics-address "${SLUICE_ADDRESS:-0.0.0.0}" "$@"
