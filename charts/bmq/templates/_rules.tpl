{{/* What the operator may do with bmq's own resources, wherever they are: rights that a namespace grants go first when it is deleted, and its resources would wait for ever. */}}
{{- define "bmq.resourceRules" -}}
- apiGroups: [bmq.io]
  resources: [clusters, topics, lanes, channels, parquetsinks]
  verbs: [get, list, watch, patch]
# A Lane's time may be over.
- apiGroups: [bmq.io]
  resources: [lanes]
  verbs: [delete]
- apiGroups: [bmq.io]
  resources: [clusters/status, topics/status, lanes/status, channels/status, parquetsinks/status]
  verbs: [patch]
# Whether it is being deleted: then nothing is waited for.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end -}}

{{/* What the operator may do in each namespace that it looks after. */}}
{{- define "bmq.rules" -}}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# What Kubernetes keeps of templates before: their ConfigMaps stay.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [list]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts]
  verbs: [get, list, create, patch, delete]
# Watched are those with the label bmq.io/use alone, which the rights of Kubernetes cannot say.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
# Read before an embedded MinIO would mount one; deleted with a Cluster's policy Delete alone, and else taken from its StatefulSet to stay.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
# Posted, and read where Kubernetes makes no pods: a quota, or a Pod Security Standard, is in events alone.
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]
{{- if .Values.spark.enabled }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications, scheduledsparkapplications]
  verbs: [get, list, watch, create, patch, delete]
# A schedule that was changed counts at once, and not after its next run; a driver whose submission the Spark Operator lost the note of is its own again.
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/status, scheduledsparkapplications/status]
  verbs: [patch]
{{- end }}
{{- end -}}

{{/* The nodes' addresses, which clients of a NodePort listener are told. */}}
{{- define "bmq.nodeRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end -}}
