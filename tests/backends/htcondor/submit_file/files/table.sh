#!/bin/bash
module load python
python train.py --lr $1 --width "$2" --optimizer $3
tar -czf results.tar.gz results
