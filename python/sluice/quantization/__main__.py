"""sluice-quantize: a saved graph with 8-bit integers, from the command line."""

from sluice.quantization._command import main

if __name__ == "__main__":
    main()
