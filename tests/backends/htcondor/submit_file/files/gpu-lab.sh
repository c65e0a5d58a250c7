#!/bin/bash
set -e
echo "on $(hostname)"
nvidia-smi
tar -xzf mnist.tar.gz
export HOME=$_CONDOR_SCRATCH_DIR
export OMP_NUM_THREADS=4
python train.py --data ./mnist "$@"
