"""Names as data: those of torch and OneFlow that are not here, OneFlow's, and the stages of features."""
