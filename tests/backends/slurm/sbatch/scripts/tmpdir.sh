#!/bin/bash
#SBATCH --account=def-prof
#SBATCH --gpus-per-node=v100l:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32000M
#SBATCH --time=0-03:00
#SBATCH --output=%N-%j.out

module load python/3.11 cuda
virtualenv --no-download $SLURM_TMPDIR/env
source $SLURM_TMPDIR/env/bin/activate
pip install --no-index -r requirements.txt

mkdir -p $SLURM_TMPDIR/data
tar xf ~/projects/def-prof/data.tar -C $SLURM_TMPDIR/data

python train.py --data $SLURM_TMPDIR/data
cp -r $SLURM_TMPDIR/results ~/scratch/
