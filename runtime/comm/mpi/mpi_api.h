// MPI's C interface alone: Open MPI's header otherwise brings C++ classes that need a library of
// their own.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
