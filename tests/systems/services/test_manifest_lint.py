"""The lint of manifests: sets in the shapes of public charts are accused of nothing, and what is wrong in them is named."""

from __future__ import annotations

import copy

import pytest
import yaml

from cordee.systems.services.kubernetes.lint import manifest_findings

RIGHT = {
    "stateful set, claim templates, headless service, one service for a pod": """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db-headless
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      initContainers:
      - {name: own, image: db:1, volumeMounts: [{name: data, mountPath: /data}]}
      containers:
      - name: db
        image: db:1
        args: [--password-file, /run/login/password]
        env:
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: elsewhere, key: password}}}
        ports: [{containerPort: 5432, name: sql}]
        volumeMounts: [{name: data, mountPath: /data}]
        volumeDevices: [{name: raw, devicePath: /dev/raw}]
        readinessProbe: {tcpSocket: {port: sql}}
      - name: metrics
        image: exporter
        ports: [{containerPort: 9187, name: metrics}]
        livenessProbe: {httpGet: {path: /, port: metrics}}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
  - {metadata: {name: raw}, spec: {volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: v1
kind: Service
metadata: {name: db-headless}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 5432, targetPort: sql}, {name: m, port: 9187, targetPort: metrics}]}
---
apiVersion: v1
kind: Service
metadata: {name: db-0}
spec: {type: LoadBalancer, selector: {statefulset.kubernetes.io/pod-name: db-0}, ports: [{port: 5432, targetPort: sql}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: db}}}
""",
    "job and cron job, keys of a config and of a secret": """
apiVersion: batch/v1
kind: Job
metadata: {generateName: migrate-}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: migrate
        image: tool:2
        env:
        - {name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}
        - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level, optional: true}}}
        - {name: LOGIN, valueFrom: {secretKeyRef: {name: login, key: user}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: 0 3 * * *
  jobTemplate:
    spec:
      template:
        metadata: {labels: {app: nightly}}
        spec:
          restartPolicy: OnFailure
          containers:
          - {name: run, image: tool:2, resources: {requests: {cpu: 700m, memory: 1e9}, limits: {cpu: 0.7, memory: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
data: {password: eA==}
stringData: {user: me}
""",
    "daemon set in its node's world": """
apiVersion: v1
kind: Namespace
metadata: {name: monitoring, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-exporter, namespace: monitoring}
spec:
  selector: {matchExpressions: [{key: app, operator: In, values: [node-exporter]}, {key: old, operator: DoesNotExist}]}
  template:
    metadata: {labels: {app: node-exporter}}
    spec:
      hostNetwork: true
      hostPID: true
      containers:
      - name: node-exporter
        image: node-exporter:v1
        securityContext: {privileged: true, runAsUser: 0}
        ports: [{containerPort: 53, name: dns, protocol: UDP}, {containerPort: 53, name: dns-tcp}]
        volumeMounts: [{name: root, mountPath: /host, mountPropagation: HostToContainer}]
      volumes: [{name: root, hostPath: {path: /}}]
---
apiVersion: v1
kind: Service
metadata: {name: node-exporter, namespace: monitoring}
spec:
  selector: {app: node-exporter}
  ports: [{name: dns, port: 53, protocol: UDP, targetPort: dns}, {name: dns-tcp, port: 53, targetPort: dns-tcp}]
""",
    "init containers, projected volumes, an optional file, a file that a controller fills in": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec:
      initContainers:
      - {name: wait, image: busybox, restartPolicy: Always, ports: [{name: side, containerPort: 99}], volumeMounts: [{name: all, mountPath: /all}]}
      containers:
      - name: web
        image: web:3
        envFrom: [{configMapRef: {name: absent, optional: true}}, {secretRef: {name: web}}]
        lifecycle: {preStop: {httpGet: {path: /end, port: http}}}
        ports: [{name: http, containerPort: 80}]
        volumeMounts: [{name: all, mountPath: /all}, {name: ca, mountPath: /ca, subPath: ca.crt}, {name: old, mountPath: /old}]
      volumes:
      - name: all
        projected:
          sources:
          - {configMap: {name: web, items: [{key: web.ini, path: web.ini}]}}
          - {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}
          - {secret: {name: web, items: [{key: token, path: token}]}}
          - {serviceAccountToken: {path: key}}
          - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
      - {name: ca, configMap: {name: bundle, items: [{key: ca.crt, path: ca.crt}]}}
      - {name: old, secret: {secretName: web, optional: true, items: [{key: gone, path: gone}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {other: x}
binaryData: {web.ini: eA==}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bundle, namespace: shop, annotations: {service.beta.openshift.io/inject-cabundle: "true"}}
---
apiVersion: bitnami.com/v1alpha1
kind: SealedSecret
metadata: {name: web, namespace: shop}
spec: {encryptedData: {token: AgBy}, template: {metadata: {name: web}, data: {config: x}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}, {name: side, port: 99, targetPort: side}, {name: more, port: 81, targetPort: 8181}]}
""",
    "services without pods, endpoints by hand, ingresses and routes": """
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: ExternalName, externalName: db.example.org}
---
apiVersion: v1
kind: Service
metadata: {name: legacy}
spec: {ports: [{name: http, port: 80, targetPort: web}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: legacy-1, labels: {kubernetes.io/service-name: legacy}}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3]}]
ports: [{name: http, port: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: site}
spec:
  defaultBackend: {service: {name: outside, port: {number: 443}}}
  rules:
  - host: a.example.org
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: legacy, port: {number: 80}}}}
      - {path: /b, pathType: Prefix, backend: {service: {name: legacy, port: {name: http}}}}
      - {path: /c, pathType: Prefix, backend: {service: {name: of-another-set, port: {name: web}}}}
      - {path: /d, pathType: Prefix, backend: {service: {name: legacy, port: {name: use-annotation}}}}
      - {path: /e, pathType: Prefix, backend: {resource: {apiGroup: k8s.example.org, kind: Bucket, name: static}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: site}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: legacy, port: 80}, {name: legacy, namespace: other, port: 9}]}]}
""",
    "autoscaler, policies and rights in a list": """
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: api}
  spec:
    selector: {matchLabels: {app: api}}
    template:
      metadata: {labels: {app: api}}
      spec: {serviceAccountName: api, containers: [{name: api, image: api:4, livenessProbe: {httpGet: {port: 8080}}}]}
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: api}
  spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: api}, maxReplicas: 5}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: api}
  spec: {podSelector: {matchLabels: {app: api}}, ingress: [{}], policyTypes: [Ingress]}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: default-deny}
  spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: api}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: "system:api:reader"}
  rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: "system:api"}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
  subjects: [{kind: ServiceAccount, name: api, namespace: default}]
""",
    "objects of operators": """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: model}
spec: {template: {spec: {containers: [{image: model:1, ports: [{name: h2c, containerPort: 8080}]}]}}}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: front}
spec: {workloadRef: {name: front}, template: {metadata: {labels: {app: front}}, spec: {containers: [{name: front, image: front:1}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: front}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: models.example.org}
spec: {group: example.org, scope: Namespaced, names: {kind: Model, plural: models}, versions: []}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: login}
spec: {target: {creationPolicy: Merge, template: {data: {a: b}}}, data: [{secretKey: password, remoteRef: {key: x}}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {user: me}
---
apiVersion: v1
kind: Pod
metadata: {name: client, labels: {app: client}}
spec: {containers: [{name: client, image: client:1, env: [{name: LOGIN, valueFrom: {secretKeyRef: {name: login, key: password}}}]}]}
""",
    "a pod with GPUs in a namespace that restricts": """
apiVersion: v1
kind: Namespace
metadata: {name: gpu, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Secret
metadata: {name: robot, namespace: gpu, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
data: {extra: eA==}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: gpu}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: train
    image: train:1
    env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: robot, key: token}}}]
    resources: {requests: {cpu: 4, nvidia.com/gpu: "2"}, limits: {nvidia.com/gpu: 2, hugepages-2Mi: 1Gi}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
    volumeMounts: [{name: fast, mountPath: /fast}]
  volumes: [{name: fast, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]
""",
    "passwords by file, by a variable before, or none": """
apiVersion: v1
kind: ReplicationController
metadata: {name: cache}
spec:
  template:
    metadata: {labels: {app: cache}}
    spec:
      containers:
      - name: cache
        image: cache@sha256:0000000000000000000000000000000000000000000000000000000000000000
        env:
        - {name: CACHE_PASSWORD, value: ""}
        - {name: API_TOKEN, value: $(OTHER)}
        - {name: SSH_PRIVATE_KEY, value: /run/keys/id}
        - {name: TOKENS_PER_BATCH, value: "4096"}
""",
}


def severities(documents) -> dict[str, list[str]]:
    found = manifest_findings(documents)
    return {
        severity: [f"{one.rule}: {one.text}" for one in found if one.severity == severity]
        for severity in ("error", "warn")
    }


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_correct_set_is_accused_of_nothing(text):
    documents = list(yaml.safe_load_all(text))
    before = copy.deepcopy(documents)
    found = severities(documents)
    assert found["error"] == []
    assert [one for one in found["warn"] if not one.startswith("image-tag")] == []
    assert documents == before


DB, JOBS, NODE, WEB, SITE, LIST, OPERATORS, GPU, PASSWORDS = RIGHT
WRONG = [
    (
        DB,
        "selector: {matchLabels: {app: db}}\n  template",
        "selector: {matchLabels: {app: dp}}\n  template",
        "selector-mismatch",
        "StatefulSet db",
    ),
    (DB, "- {metadata: {name: data}, spec", "- {metadata: {name: date}, spec", "unknown-volume", "data"),
    (DB, "volumeDevices: [{name: raw,", "volumeDevices: [{name: row,", "unknown-volume", "row"),
    (DB, "tcpSocket: {port: sql}", "tcpSocket: {port: sqll}", "unknown-port", "sqll"),
    (DB, "httpGet: {path: /, port: metrics}", "httpGet: {path: /, port: sql}", "unknown-port", "livenessProbe"),
    (DB, "targetPort: metrics", "targetPort: metric", "unknown-port", "metric"),
    (JOBS, "{name: settings, key: mode}", "{name: settings, key: mod}", "missing-key", "mod"),
    (JOBS, "{name: login, key: user}", "{name: login, key: usr}", "missing-key", "usr"),
    (JOBS, "cpu: 0.7,", "cpu: 0.6,", "request-over-limit", "cpu"),
    (JOBS, "memory: 1Gi", "memory: 512Mi", "request-over-limit", "memory"),
    (JOBS, "name: nightly}\nspec", "name: Nightly_1}\nspec", "bad-name", "Nightly_1"),
    (NODE, "values: [node-exporter]", "values: [exporter]", "selector-mismatch", "DaemonSet"),
    (NODE, "{key: old, operator: DoesNotExist}", "{key: old, operator: Exists}", "selector-mismatch", "DaemonSet"),
    (NODE, "protocol: UDP, targetPort: dns}", "protocol: UDP, targetPort: dns-tcp}", "unknown-port", "dns-tcp"),
    (NODE, "enforce: privileged", "enforce: restricted", "pod-security", "hostNetwork"),
    (WEB, "{key: web.ini, path", "{key: web.init, path", "missing-key", "web.init"),
    (WEB, "{key: token, path", "{key: tokn, path", "missing-key", "tokn"),
    (WEB, "path: /end, port: http", "path: /end, port: htpp", "unknown-port", "preStop"),
    (WEB, "mountPath: /old", "mountPath: /ca", "same-mount", "/ca"),
    (SITE, "port: {number: 80}", "port: {number: 81}", "unknown-port", "81"),
    (SITE, "port: {name: http}", "port: {name: web}", "unknown-port", "web"),
    (SITE, "{name: legacy, port: 80}", "{name: legacy, port: 8080}", "unknown-port", "8080"),
    (LIST, "selector: {matchLabels: {app: api}}", "selector: {}", "selector-mismatch", "Deployment api"),
    (LIST, "image: api:4, ", "", "no-image", "Deployment api"),
    (LIST, "port: 8080", "port: 80800", "port-range", "80800"),
    (GPU, 'nvidia.com/gpu: "2"', 'nvidia.com/gpu: "1"', "request-over-limit", "nvidia.com/gpu"),
    (GPU, "drop: [ALL], ", "", "pod-security", "drop"),
    (GPU, "add: [NET_BIND_SERVICE]", "add: [SYS_ADMIN]", "pod-security", "SYS_ADMIN"),
    (GPU, "runAsNonRoot: true, ", "", "pod-security", "runAsNonRoot"),
    (GPU, "runAsNonRoot: true,", "runAsNonRoot: true, runAsUser: 0,", "pod-security", "runAsUser"),
]


@pytest.mark.parametrize(("name", "before", "after", "rule", "said"), WRONG)
def test_a_mistake_in_a_correct_set_is_an_error_and_the_only_kind_of_error(name, before, after, rule, said):
    assert RIGHT[name].count(before) == 1, "the mistake is at one place"
    found = severities(yaml.safe_load_all(RIGHT[name].replace(before, after)))["error"]
    assert {one.partition(":")[0] for one in found} == {rule}
    assert any(said in one for one in found)


DOUBTFUL = [
    (
        DB,
        "headless}\nspec: {clusterIP: None, selector: {app: db}",
        "headless}\nspec: {clusterIP: None, selector: {app: dp}",
        "selector-mismatch",
    ),
    (
        DB,
        "maxUnavailable: 1, selector: {matchLabels: {app: db}}",
        "maxUnavailable: 1, selector: {matchLabels: {app: dp}}",
        "selector-mismatch",
    ),
    (LIST, "podSelector: {matchLabels: {app: api}}", "podSelector: {matchLabels: {app: app}}", "selector-mismatch"),
    (PASSWORDS, 'CACHE_PASSWORD, value: ""', "CACHE_PASSWORD, value: hunter2", "secret-in-env"),
    (PASSWORDS, "name: SSH_PRIVATE_KEY", "name: CACHE_PASSWORD", "variable-twice"),
    (JOBS, "data: {mode: fast}", "data: {mode: fast, db_password: hunter2}", "secret-in-config"),
]


@pytest.mark.parametrize(("name", "before", "after", "rule"), DOUBTFUL)
def test_what_may_be_meant_is_a_warning(name, before, after, rule):
    assert RIGHT[name].count(before) == 1, "the doubt is at one place"
    found = severities(yaml.safe_load_all(RIGHT[name].replace(before, after)))
    assert found["error"] == []
    assert {one.partition(":")[0] for one in found["warn"]} - {"image-tag"} == {rule}


@pytest.mark.parametrize("spec", [None, {}, {"template": None}, {"template": {"spec": {"containers": [None]}}}])
def test_an_object_that_is_only_half_there_is_told_and_breaks_nothing(spec):
    found = severities([None, {}, {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}])["error"]
    assert any(one.startswith("no-container") for one in found)
