#!/bin/bash
ENVNAME=resnet
export ENVDIR=$ENVNAME
mkdir $ENVDIR
tar -xzf $ENVNAME.tar.gz -C $ENVDIR
. $ENVDIR/bin/activate
torchrun --standalone --nproc-per-node 2 train.py --epochs $1 --out $2
