#!/bin/bash
#SBATCH --job-name="resnet 50"      # a short name
#SBATCH --nodes=1                # node count
#SBATCH --ntasks=1               # total number of tasks
#SBATCH --cpus-per-task=16       # one thread per core
#SBATCH --mem=128G               # of the node
#SBATCH --gres=gpu:a100:4        # GPUs per node
#SBATCH --time=23:59:00
#SBATCH --mail-type=begin

module purge
module load anaconda3/2024.6
conda activate torch-env
ulimit -n 65536

LR=0.1
torchrun --standalone --nproc-per-node=4 train.py --lr $LR --data "$HOME/data set"
