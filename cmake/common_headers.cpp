// Stands for the headers that most sources include, which are compiled once: SluiceTargets.cmake.
