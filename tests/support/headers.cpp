// Stands for the headers that all tests include, which are compiled once: cmake/SluiceTargets.cmake.
int main() {}
