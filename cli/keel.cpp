// The program `keel`: the commands, for keel's own tasks.

#include "main.h"

int main(int argc, char** argv) { return keel::main(argc, argv); }
